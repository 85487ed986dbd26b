"""Tools for models: each a module or a folder; `sardonyx.cli` has their commands."""
