"""The version of this package, for modules that the package itself lists among its public names."""

__version__ = "0.1.0"
