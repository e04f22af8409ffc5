"""`profkit sweep`: times the launch configurations of a workload's `Tunable`.

`plan` says what is swept, `region` runs the protocol on one problem, `cpu_clock` and `gpu_clock` time, `statistics`
judges `store` keeps finished regions, `results` reads them back.
"""
