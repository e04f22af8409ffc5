"""Module calls as ranges: which modules are layers, and how they are numbered."""

from __future__ import annotations

from recorded_captures import table_of_ranges

from profkit.attribution.captures import module_ranges


def texts(*calls: tuple[int, int, str]) -> list[str]:
    """The texts of the ranges that the module calls (start, end, class and instance) become."""
    rows = [(start, end, f"nn.Module: {name}", "python_function") for start, end, name in calls]
    return module_ranges(table_of_ranges(rows))["text"].astype(str).tolist()


def test_layers_are_numbered_in_order_whatever_their_instance_numbers() -> None:
    assert texts((0, 90, "Model_0"), (10, 20, "DecoderLayer_4"), (30, 40, "DecoderLayer_5")) == [
        "Model",
        "layers.0",
        "layers.1",
    ]


def test_layers_of_two_classes_share_one_numbering_and_keep_their_class() -> None:
    calls = [(0, 90, "Model_0"), (10, 20, "MambaLayer_0"), (30, 40, "AttentionLayer_0"), (50, 60, "MambaLayer_1")]
    assert texts(*calls)[1:] == ["layers.0.MambaLayer", "layers.1.AttentionLayer", "layers.2.MambaLayer"]


def test_the_outermost_repeated_module_counts() -> None:
    calls = [(0, 90, "Model_0")]
    for number in range(2):
        at = 10 + 40 * number
        calls += [(at, at + 30, f"BertLayer_{number}"), (at + 1, at + 9, f"LinearLayer_{2 * number}")]
        calls += [(at + 11, at + 19, f"LinearLayer_{2 * number + 1}")]
    assert texts(*calls) == [
        "Model",
        "layers.0",
        "LinearLayer",
        "LinearLayer",
        "layers.1",
        "LinearLayer",
        "LinearLayer",
    ]


def test_encoder_and_decoder_count_their_own_layers() -> None:
    calls = [(0, 40, "Encoder_0"), (1, 9, "Block_0"), (11, 19, "Block_1"), (50, 90, "Decoder_0")]
    calls += [(51, 59, "Block_2"), (61, 69, "Block_3")]
    assert texts(*calls) == ["Encoder", "layers.0", "layers.1", "Decoder", "layers.0", "layers.1"]


def test_pieces_of_a_compiled_graph_are_no_layers() -> None:
    calls = [(0, 90, "GptOss_0"), *[(10 * i + 10, 10 * i + 19, "GraphModule_0") for i in range(5)]]
    assert texts(*calls) == []


def test_one_layer_alone_says_nothing() -> None:
    assert texts((0, 90, "Model_0"), (10, 20, "DecoderLayer_0")) == []
