"""Config -> what each part of a stage is made from.

A part gets a small frozen spec, or the one section that it reads: it never sees the whole config. Here the config is read, once,
when a stage is put together; the class of a spec is next to the part that it makes.
"""
