"""What all requests of a process share."""

from dataclasses import dataclass

from lazuli_client.gateway.errors import invalid, too_large
from lazuli_client.gateway.metrics import Metrics
from lazuli_client.gateway.replicas.pool import Pool
from lazuli_client.gateway.settings import GatewaySettings
from lazuli_client.gateway.work.models import Models
from lazuli_client.gateway.work.service import Service


@dataclass(frozen=True)
class Gateway:
    """The parts of a gateway."""

    settings: GatewaySettings
    pool: Pool
    models: Models
    service: Service
    metrics: Metrics

    def check_rows(self, count: int, field: str) -> None:
        """Refuse a request without rows, or with too many.

        Raises:
            ApiError: With 400 or 413.
        """
        if count == 0:
            raise invalid(f"{field}: there is no text; at least 1 is needed", field)
        if count > self.settings.max_rows:
            raise too_large(f"{field}: {count} rows, but at most {self.settings.max_rows} are allowed", field)
