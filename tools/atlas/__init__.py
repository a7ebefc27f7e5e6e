"""The builder of the atlas, in parts; ``tools/build_atlas.py`` puts them together. Not part of the package."""
