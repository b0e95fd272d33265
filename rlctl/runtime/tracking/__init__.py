"""Trackers: the places that metrics are sent to beside the run folder.

    interface.py    what a tracker does
    make.py         the config's trackers, made for one run
    safe.py         a tracker that cannot stop the run
    secrets.py      the config as a tracker may see it
    tensorboard.py  swanlab.py  wandb.py  mlflow.py    one service a file, imported when it is used

The console is the front end's, not a tracker here. To add one: a section in the config, a file here, a line in ``make.py``.
"""
