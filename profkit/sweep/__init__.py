"""`profkit sweep`: times the launch configurations of a workload's `Tunable`.

`plan` says what is swept, `region` runs the protocol on one problem, `clock` times, `judge` says what differs beyond
noise, `records` are what a sweep's files hold and its reports show.
"""
