"""What configs of verl's trainer say, whichever framework hands them to it: verl itself, and Trinity under ``trainer_config``.

    fsdp.py      blocks of its FSDP engine
    megatron.py  blocks of its Megatron engine

A block stands at another place in each framework, some of its keys have other defaults, and some releases have others.
"""
