"""What configs of verl's trainer say, whichever framework hands them to it: verl itself, and Trinity under ``trainer_config``.

    fsdp.py      blocks of its FSDP engine
    megatron.py  blocks of its Megatron engine

Each framework has a block at another place, with other defaults for some keys, and some releases have other keys.
"""
