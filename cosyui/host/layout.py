"""How engines are spread over a cluster: what each replica gets, and how many there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from cosyui.errors import SetupError
from cosyui.host.scaling import SECONDS_PER_PLACE
from cosyui.settings import Settings


class Layout(BaseModel):
    """Make one with `read`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min_replicas: int = Field(1, ge=1, le=1000, description="replicas that are always there")
    max_replicas: int = Field(2, ge=1, le=1000, description="replicas at most")
    num_gpus: float = Field(1.0, ge=0, le=1, description="share of a GPU that a replica gets, 0 for none")
    num_cpus: float = Field(1.0, ge=0, le=256, description="CPU cores that a replica gets")
    front_cpus: float = Field(1.0, ge=0, le=256, description="CPU cores for page, API and queue")
    front_resource: str = Field(
        "", pattern=r"^\w*$", description="resource of the node that has the disk for results, as in front"
    )
    seconds_per_place: float = Field(
        SECONDS_PER_PLACE, gt=0, le=3600, description="seconds of speech to be made for each place before one is added"
    )
    upscale_delay: float = Field(5.0, gt=0, le=3600, description="seconds that it must be too little for")
    downscale_delay: float = Field(300.0, ge=0, le=86_400, description="seconds that it must be too much for")

    @classmethod
    def read(cls, given: Mapping[str, Any], settings: Settings) -> Self:
        """Checked against the settings of each replica.

        Raises:
            SetupError: ``setting_unknown`` or ``setting_invalid``.
        """
        unknown = sorted(set(given) - set(cls.model_fields))
        if unknown:
            known = ", ".join(cls.model_fields)
            raise SetupError("setting_unknown", f"{unknown[0]} does not belong to a layout; known are {known}.")
        try:
            layout = cls.model_validate(given)
        except ValidationError as error:
            told = (f"{'.'.join(map(str, one['loc'])) or 'layout'}: {one['msg']}." for one in error.errors())
            raise SetupError("setting_invalid", " ".join(told)) from None
        if 0 < layout.num_gpus < 1 and not settings.vram_budget:
            message = "Replicas that share a GPU need a bound on the memory of each: set COSYUI_VRAM_BUDGET."
            raise SetupError("setting_invalid", message)
        if settings.devices:
            message = "Each replica gets its GPU from Ray: leave COSYUI_DEVICES empty, and set max_replicas."
            raise SetupError("setting_invalid", message)
        return layout

    @model_validator(mode="after")
    def _range(self) -> Self:
        if self.min_replicas > self.max_replicas:
            raise ValueError("min_replicas must not be more than max_replicas")
        return self
