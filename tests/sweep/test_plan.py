"""What a sweep will measure: regions, values and states from the options, and what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the workload of these tests uses torch")

from cpu_tunable import PLAIN, SCALE  # noqa: E402

from profkit.errors import ProfkitError  # noqa: E402
from profkit.model.workload import Parameter  # noqa: E402
from profkit.sweep.plan import Options, Plan, make_plan  # noqa: E402

HERE = Path(__file__).parent


def plan(**options: Any) -> Plan:
    return make_plan(Options(workload=f"{HERE / 'cpu_tunable.py'}:SCALE", **options), SCALE)


def region_names(**options: Any) -> list[str]:
    return list(plan(**options).regions)


def test_without_a_region_the_first_is_taken_and_said_to_be_one_of_three() -> None:
    assert region_names() == ["small"]
    assert plan().not_taken == 2


def test_names_globs_and_all_choose_regions_in_the_workloads_order() -> None:
    assert region_names(regions=("large-2", "small")) == ["small", "large-2"]
    assert region_names(regions=("large*", "large")) == ["large", "large-2"]
    assert region_names(regions=("all",)) == ["small", "large", "large-2"]
    assert plan(regions=("small",)).not_taken == 0


def test_a_region_fixes_its_shapes_and_others_keep_their_default_or_what_the_user_gives() -> None:
    assert plan(regions=("large",)).regions == {"large": {"size": 40_000, "other": 1}}
    assert plan(regions=("large",), shapes=("other=7",)).regions == {"large": {"size": 40_000, "other": 7}}


def test_shapes_alone_are_a_region_of_the_users_own() -> None:
    assert plan(shapes=("size=5", "other=7")).regions == {"size=5, other=7": {"size": 5, "other": 7}}
    assert plan(shapes=("size=5",)).not_taken == 0


def test_values_replace_what_a_parameter_is_swept_over() -> None:
    assert plan(values=("repeats=3,4,3",)).values == {"chunks": (1, 2), "repeats": (3, 4)}


def test_configurations_are_the_product_and_what_known_tables_choose_each_once() -> None:
    known = {"a": {"repeats": 40, "chunks": 2}, "b": {"chunks": 9, "repeats": 9}}
    planned = plan()
    assert [tuple(c.values()) for c in planned.configurations("small", known)] == [
        (1, 40),
        (1, 400),
        (2, 40),
        (2, 400),
        (9, 9),
    ]
    alone = plan(only_known=True)
    assert alone.configurations("small", known) == [
        {"chunks": 2, "repeats": 40},
        {"chunks": 9, "repeats": 9},
    ]


def test_states_are_both_on_a_gpu_and_hot_alone_on_the_cpu() -> None:
    assert plan().states == ("hot", "evicted")
    assert plan(state="evicted").states == ("evicted",)
    assert plan(device="cpu").states == ("hot",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"regions": ("larg",)}, "scale has no region 'larg'. Did you mean large? Known: small, large, large-2."),
        ({"regions": ("large",), "shapes": ("size=5",)}, "Region large fixes size, and so does --shape."),
        ({"shapes": ("siz=5",)}, "scale has no shape 'siz'. Did you mean size?"),
        ({"values": ("repeat=3",)}, "scale has no parameter 'repeat'. Did you mean repeats?"),
        ({"shapes": ("size=5", "size=6")}, "--shape size is given twice. Give it once"),
        ({"shapes": ("size=5", "size=5")}, "--shape size is given twice. Give it once"),
        ({"values": ("repeats=3", "chunks=1", "repeats=4")}, "--set repeats is given twice. Give all its values at"),
        ({"values": ("repeats",)}, "--set 'repeats' is not parameter=v1,v2"),
        ({"values": ("repeats=3,x",)}, "--set repeats=3,x: expected integers with commas between"),
        ({"state": "warm"}, "No state 'warm'."),
        ({"state": "evicted", "device": "cpu"}, "--state evicted is not offered on the CPU"),
        ({"device": "gpu"}, "No device 'gpu'."),
        ({"variant": "fancy"}, "scale has no variant 'fancy'."),
    ],
)
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ProfkitError) as raised:
        plan(**options)
    assert message in str(raised.value)


def test_a_workload_without_a_tunable_has_nothing_to_sweep() -> None:
    with pytest.raises(ProfkitError, match="plain offers no launch configuration to sweep"):
        make_plan(Options(workload="x.py:PLAIN"), PLAIN)


def test_a_region_among_many_is_not_answered_with_all_their_names() -> None:
    assert SCALE.tunable is not None
    regions = {f"r{number}-kv1": {"size": number + 8} for number in range(100)}
    many = dataclasses.replace(SCALE, tunable=dataclasses.replace(SCALE.tunable, regions=regions))
    with pytest.raises(ProfkitError) as raised:
        make_plan(Options(workload="x.py:SCALE", regions=("r7-kv",)), many)
    assert "It has 100, such as r7-kv1, " in str(raised.value)
    assert len(str(raised.value)) < 200


def test_a_known_entry_that_lacks_a_parameter_is_the_workloads_fault() -> None:
    planned = plan()
    with pytest.raises(
        ProfkitError, match="the entry of a for region small sets chunks, but the parameters are chunks"
    ):
        planned.configurations("small", {"a": {"chunks": 1}})


def test_only_known_entries_where_there_are_none() -> None:
    planned = plan(only_known=True)
    with pytest.raises(ProfkitError, match="No known table has an entry for region small"):
        planned.configurations("small", {})


def test_jobs_are_as_asked_else_by_cores_and_configurations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    many = "repeats=" + ",".join(map(str, range(14)))
    assert plan().jobs == 1
    assert plan(values=(many,)).jobs == 4
    assert plan(values=(many, "chunks=1,2,4,8")).jobs == 8
    assert plan(values=(many,), device="cpu").jobs == 1
    assert plan(values=(many,), only_known=True).jobs == 1
    assert plan(jobs=3).jobs == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parameters": {}}, "tunable: Expected `object` of length >= 1 - at `$.parameters`"),
        ({"parameters": {"a": Parameter((), "")}}, "Expected `array` of length >= 1 - at `$.parameters[...].values`"),
        (
            {"parameters": {"a": Parameter((1.5,), "")}},
            "Expected `int`, got `float` - at `$.parameters[...].values[0]`",
        ),  # type: ignore[arg-type]
        ({"parameters": {"\udcff": Parameter((1,), "")}}, "at `key` in `$.parameters`"),
        ({"parameters": {"a": 3}}, "Expected `object`, got `int` - at `$.parameters[...]`"),
        ({"regions": {5: {"size": 8}}}, "Expected `str`, got `int` - at `key` in `$.regions`"),
        ({"regions": {"r\udcff": {"size": 8}}}, "at `key` in `$.regions`"),
        ({"regions": {"": {"size": 8}}}, "Expected `str` of length >= 1 - at `key` in `$.regions`"),
        ({"regions": {"r": None}}, "Expected `object`, got `null` - at `$.regions[...]`"),
        ({"regions": {"r": {"size": 1.5}}}, "Expected `int | str`, got `float` - at `$.regions[...][...]`"),
        ({"regions": None}, "Expected `object`, got `null` - at `$.regions`"),
        ({"regions": {"r": {"size": "x"}}}, "scale does not fit its own region r: --shape size=x: expected an integer"),
    ],
)
def test_a_tunable_that_is_none_is_the_workloads_fault(changes: dict[str, Any], message: str) -> None:
    assert SCALE.tunable is not None
    faulty = dataclasses.replace(SCALE, tunable=dataclasses.replace(SCALE.tunable, **changes))
    with pytest.raises(ProfkitError) as raised:
        make_plan(Options(workload="x.py:SCALE"), faulty)
    assert str(raised.value).startswith("scale")
    assert message in str(raised.value)
    with pytest.raises(ProfkitError, match=r"tunable is of type str, not a profkit.model.workload.Tunable"):
        make_plan(Options(workload="x.py:SCALE"), dataclasses.replace(SCALE, tunable="x"))  # type: ignore[arg-type]
