"""Objects as JSON and binary members, and back: what model files are made of.

Only objects of the classes in `mcdensity._known` are written and built; nothing that is read is
ever run.
"""

from mcdensity._codec.archive import ModelFileError, check_archive, read_member
from mcdensity._codec.reader import Reader
from mcdensity._codec.trial import try_out
from mcdensity._codec.writer import Writer

__all__ = ["ModelFileError", "Reader", "Writer", "check_archive", "read_member", "try_out"]
