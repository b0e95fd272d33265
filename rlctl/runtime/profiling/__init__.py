"""What a run costs, and where: time and memory of every call, timelines of steps, and profilers in workers.

    usage.py       what a call in a worker took; the calls of a step, gathered
    throughput.py  idle time, tokens a second, MFU and memory, as metrics
    timeline.py    a Chrome trace of steps: the controller's phases and every worker's calls
    tools.py       the profilers of the config, as a worker runs them
    steps.py       which steps are profiled, in which workers

Nothing here changes a number that is trained on.
"""
