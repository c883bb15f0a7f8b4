"""What only a search for cycles would free."""

import contextlib
import gc


@contextlib.contextmanager
def unfreed():
    """A list that holds afterwards what went in cycles meanwhile, kvcellar's objects.

    Not how many objects such a search finds: other threads leave some, those of a
    parallel test run, too.
    """
    found = []
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        found += [one for one in gc.garbage if is_ours(type(one))]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


def is_ours(kind):
    """Whether it is defined in kvcellar."""
    return kind.__module__.partition(".")[0] == "kvcellar"
