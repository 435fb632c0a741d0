"""Agent definitions: YAML files, their validation and the registry that holds them."""
