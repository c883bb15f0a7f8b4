"""Why a server gave no answer, in words."""

import errno
import http.client
import socket
import ssl

from kvcellar.errors import NoAnswerError

_IS_IT_UP = "check the address, and that the server is up"
_NO_ROUTE = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN})


def no_answer(url: str, error: Exception) -> NoAnswerError:
    """What to tell of a server that could not be asked.

    Args:
        url: where it should be.
        error: what ``urllib`` or ``http.client`` raised.
    """
    reason = getattr(error, "reason", None)
    cause = reason if isinstance(reason, Exception) else error
    return NoAnswerError(url, *_words_of(cause))


def _words_of(cause: Exception) -> tuple[str, str]:
    """The first that fits: a special error stands before its base class."""
    known = _of_connection(cause) or _of_protocol(cause)
    if known is not None:
        return known
    said = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
    return said[:1].lower() + said[1:], _IS_IT_UP


def _of_connection(cause: Exception) -> tuple[str, str] | None:
    """There is none."""
    match cause:
        case ConnectionRefusedError():
            return "connection refused, nothing listens there", _IS_IT_UP
        case TimeoutError():
            return "timed out", _IS_IT_UP
        case socket.gaierror(errno=socket.EAI_AGAIN):
            return "the host name cannot be looked up now", "check its spelling and DNS"
        case socket.gaierror():
            return "host name unknown", "check its spelling"
        case OSError() if cause.errno in _NO_ROUTE:
            return "no way leads to that host", "check the address and the network"
    return None


def _of_protocol(cause: Exception) -> tuple[str, str] | None:
    """There is one, with another program or with one that ended."""
    match cause:
        case ssl.SSLCertVerificationError():
            return (
                f"its certificate is not trusted, {cause.verify_message}",
                "have SSL_CERT_FILE name the authority that signed it",
            )
        case ssl.SSLError():
            return "what listens there speaks no TLS", "write http:// if it needs none"
        case ConnectionError() | http.client.IncompleteRead():
            return (
                "it hung up without a whole answer",
                "check that the server is up, and write https:// if it wants TLS",
            )
        case http.client.BadStatusLine():
            return "what listens there speaks no HTTP", "write https:// if it wants TLS"
    return None
