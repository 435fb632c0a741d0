"""Base class of the sections of an agent file, and the names under which their fields may be written."""

from pydantic import AliasChoices, BaseModel, ConfigDict, model_validator


class Section(BaseModel):
    """Base class of the mappings in an agent file. Unknown fields are refused; empty fields count as missing."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_empty(cls, given: object) -> object:
        if not isinstance(given, dict):
            return given
        return {key: value for key, value in given.items() if value is not None or key not in field_names(cls)}


def field_names(section: type[BaseModel]) -> tuple[str, ...]:
    """Return the names under which a section's fields may be written, aliases included."""
    names: list[str] = []
    for name, info in section.model_fields.items():
        alias = info.validation_alias
        names += [str(choice) for choice in alias.choices] if isinstance(alias, AliasChoices) else [name]
    return tuple(names)
