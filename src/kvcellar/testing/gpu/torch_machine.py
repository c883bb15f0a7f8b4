"""A real GPU's side of the checks, in PyTorch."""

import torch

from kvcellar.device.copiers import CudaCopier
from kvcellar.device.driver import DeviceError, Driver
from kvcellar.device.torch_driver import TorchDriver, open_libcuda
from kvcellar.testing.gpu.machine import Span

_MATRIX_SIZE = 4096
_NUM_PRODUCTS = 60  # some tens of milliseconds on a large GPU


class TorchWork:
    """A cache, and work on it in the current stream.

    Args:
        device: where; an accelerator, or the processor in tests.
        num_words: words of the cache.
        longest_span: words of the longest page.
        matrix_size: of the products that ``delay`` queues.
    """

    def __init__(
        self,
        device: torch.device,
        num_words: int,
        longest_span: int,
        matrix_size: int = _MATRIX_SIZE,
    ) -> None:
        self.device = device
        self.num_words = num_words
        self._cache = torch.zeros(num_words, dtype=torch.int64, device=device)
        self._ramp = torch.arange(longest_span, dtype=torch.int64, device=device)
        self._num_wrong = torch.zeros((), dtype=torch.int64, device=device)
        self.cache_address = self._cache.data_ptr()
        size = (matrix_size, matrix_size)
        matrix = torch.randn(size, device=device, dtype=torch.bfloat16)
        self._matrices = (matrix, matrix.clone(), torch.empty_like(matrix))

    def write(self, span: Span, first: int) -> None:
        """Queue a write."""
        torch.add(self._ramp[: span.num_words], first, out=self._view(span))

    def compare(self, span: Span, first: int) -> None:
        """Queue a comparison."""
        expected = self._ramp[: span.num_words] + first
        self._num_wrong += (self._view(span) != expected).any()

    def delay(self) -> None:
        """Queue matrix products."""
        left, right, out = self._matrices
        for _ in range(_NUM_PRODUCTS):
            torch.mm(left, right, out=out)

    def num_wrong(self) -> int:
        """Wait for the model's stream."""
        found = int(self._num_wrong.item())
        self._num_wrong.zero_()
        return found

    def _view(self, span: Span) -> torch.Tensor:
        return self._cache[span.first_word : span.first_word + span.num_words]


class TorchMachine(TorchWork):
    """The current GPU.

    Args:
        num_words: words of the cache.
        longest_span: words of the longest page.

    Raises:
        DeviceError: there is no NVIDIA GPU, or its driver library cannot be loaded.
    """

    def __init__(self, num_words: int, longest_span: int) -> None:
        if not torch.cuda.is_available():
            raise DeviceError("PyTorch sees no GPU here")
        device = torch.device("cuda", torch.cuda.current_device())
        library = open_libcuda(device)
        if library is None:
            raise DeviceError("the checks need an NVIDIA GPU and its libcuda.so.1")
        super().__init__(device, num_words, longest_span)
        self.library = library
        self.driver: Driver = TorchDriver(device, CudaCopier(library, device.index))
        self.driver.attach_thread()

    def settle(self) -> None:
        """Wait for the whole device; only a check may do that."""
        torch.cuda.synchronize(self.device)

    @property
    def description(self) -> dict[str, str]:
        """What was measured on."""
        properties = torch.cuda.get_device_properties(self.device)
        return {
            "gpu": properties.name,
            "pci": self.library.pci_address(self.device.index),
            "torch": torch.__version__,
            "cuda": str(torch.version.cuda),
            "batch_copy": str(self.library.has_batch),
        }
