"""The dense vectors of an answer, in the encoding that a request asks for.

Takes the options of a request and what the model can do, returns the form of its answers. Knows nothing of devices: the
rows of bytes that `read` gets come from `lazuli.outputs.finish`.
"""

from dataclasses import dataclass

import numpy as np
import torch

from lazuli.checkpoint import Checkpoint
from lazuli.config import EngineConfig
from lazuli.errors import NonFiniteError, OptionError
from lazuli.options import ENCODINGS, RequestOptions
from lazuli.outputs.calibration import Calibration, find_calibration
from lazuli.outputs.finish import Finish
from lazuli.outputs.matryoshka import ANY_DIMENSIONS, Matryoshka, read_matryoshka
from lazuli.outputs.quantize import Quantizer, make_ranges

_DTYPES = {"float32": np.float32, "float16": np.float16, "uint8": np.uint8, "ubinary": np.uint8}  # others are int8
_BITS = 8
_ELSE = "float16, binary and ubinary need none"


class DenseForm:
    """Vectors of one length and encoding."""

    def __init__(self, finish: Finish, dimension: int, *, packed: bool) -> None:
        """Describe them.

        Args:
            finish: How they are made.
            dimension: D of the model.
            packed: Whether a byte holds eight values.
        """
        encoding = finish.encoding
        self.finish = finish.code
        self.name = "embedding" if encoding == "float32" else f"embedding_{encoding}"
        self.dtype = np.dtype(_DTYPES.get(encoding, np.int8))
        self._columns = finish.dimensions or dimension
        if packed:
            self._columns //= _BITS
        # Only a vector of full length in float32 leaves no room to say apart that it is not finite.
        self._is_whole = encoding == "float32" and self._columns == dimension

    def lay_out(self, token_count: np.ndarray) -> dict[str, np.ndarray]:
        """See `lazuli.request.AnswerForm`."""
        return {self.name: np.empty((len(token_count), self._columns), dtype=self.dtype)}

    def read(self, rows: np.ndarray, values: np.ndarray) -> dict[str, np.ndarray]:
        """See `lazuli.request.AnswerForm`.

        Raises:
            NonFiniteError: If the model computed NaN or Inf, or a value is too large for float16.
        """
        finite = np.isfinite(values if self._is_whole else values[:, -1:])
        if np.count_nonzero(finite) != finite.size:  # sooner than all(), which is a function of Python
            row = int(rows[np.argmin(finite.all(axis=1))])
            raise NonFiniteError(f"{self.name}[{row}]: the model computed NaN or Inf, so there is no usable vector")
        if self._is_whole:
            return {self.name: values}
        encoded = np.ascontiguousarray(values.view(self.dtype)[:, : self._columns])
        if self.dtype == np.float16:
            self._check_range(rows, encoded)
        return {self.name: encoded}

    def _check_range(self, rows: np.ndarray, encoded: np.ndarray) -> None:
        finite = np.isfinite(encoded)
        if not finite.all():
            row = int(rows[np.argmin(finite.all(axis=1))])
            raise NonFiniteError(
                f"{self.name}[{row}]: a value is beyond {np.finfo(np.float16).max:.0f}, the largest of float16; "
                'ask for output="float32" or normalize=true'
            )


@dataclass(frozen=True)
class DenseModel:
    """What a model's dense vectors are like, and which forms of them it offers.

    Attributes:
        dimension: D.
        normalize: Whether vectors are of unit length unless a request says otherwise.
        matryoshka: To how many dimensions they may be cut.
        native: Whether the model has a quantiser of its own.
        calibration: The ranges of int8 and uint8, if it has none and was calibrated.
    """

    dimension: int
    normalize: bool
    matryoshka: Matryoshka = ANY_DIMENSIONS
    native: bool = False
    calibration: Calibration | None = None

    @classmethod
    def read(cls, checkpoint: Checkpoint, config: EngineConfig, dimension: int) -> "DenseModel":
        """Find out.

        Raises:
            ConfigError: If a file or a parameter is unusable.
        """
        native = checkpoint.has_quantizer
        pooling = config.pooling or checkpoint.pooling
        return cls(
            dimension,
            checkpoint.normalize,
            read_matryoshka(checkpoint, config.matryoshka),
            native,
            None if native else find_calibration(config.calibration, checkpoint, dimension, pooling),
        )

    def quantizer(self, device: torch.device | str = "cpu") -> Quantizer:
        """What the device needs to encode vectors."""
        if self.calibration is None:
            return Quantizer(self.native)
        ranges = [
            make_ranges(torch.tensor(entry.minimum), torch.tensor(entry.maximum), self.dimension)
            for entry in self.calibration.ranges
        ]
        return Quantizer(self.native, torch.stack(ranges).to(device))

    def choose(self, options: RequestOptions) -> DenseForm:
        """The form that a request asks for.

        Raises:
            OptionError: If the model cannot do that.
        """
        other = [name for name in options.output if name not in ENCODINGS]
        if other:
            raise OptionError(f"output: {other[0]}: the model has no such output, only dense vectors")
        return self.choose_encoding(options, options.encoding or "float32")

    def choose_encoding(self, options: RequestOptions, encoding: str) -> DenseForm:
        """The form of dense vectors beside other outputs; raises as `choose` does."""
        kept = self._check_dimensions(options)
        normalize = self.normalize if options.normalize is None else options.normalize
        place = self._find_range(encoding, kept, normalize) if encoding in ("int8", "uint8") else 0
        packed = encoding == "ubinary" or (encoding == "binary" and not self.native)
        if packed and kept % _BITS:
            raise OptionError(f"output: {encoding} packs eight values into a byte, but vectors have {kept}")
        finish = Finish(normalize, encoding, kept if kept < self.dimension else 0, place)
        return DenseForm(finish, self.dimension, packed=packed)

    def _check_dimensions(self, options: RequestOptions) -> int:
        options.check_dimensions(self.dimension)
        kept = options.dimensions or self.dimension
        if kept < self.dimension and not options.force_dimensions:
            self.matryoshka.check(kept)
        return kept

    def _find_range(self, encoding: str, kept: int, normalize: bool) -> int:
        """The place of the ranges for int8 or uint8; 0 with a quantiser that needs none."""
        if self.native:
            if encoding == "uint8":
                raise OptionError("output: uint8: the model's own quantiser makes int8, binary and ubinary")
            if normalize:
                raise OptionError(
                    "normalize: true, but int8 of this model is made of vectors that are not scaled; leave it out"
                )
            return 0
        if self.calibration is None:
            raise OptionError(
                f"output: {encoding} needs the range of each dimension over typical texts, and this model was not "
                f"calibrated; on the server run `lazuli calibrate` ({_ELSE})"
            )
        if self.calibration.normalize != normalize:
            state = "scaled" if self.calibration.normalize else "not scaled"
            raise OptionError(f"normalize: {str(normalize).lower()}, but {encoding} was calibrated on {state} vectors")
        if kept not in self.calibration.places:
            known = ", ".join(map(str, self.calibration.places))
            raise OptionError(
                f"dimensions: {kept}, but {encoding} was calibrated for {known}; on the server run "
                f"`lazuli calibrate --dimensions {kept}` ({_ELSE})"
            )
        return self.calibration.places[kept]
