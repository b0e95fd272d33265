"""What is particular to kinds of models, for all engines: config files, images, routers of experts."""
