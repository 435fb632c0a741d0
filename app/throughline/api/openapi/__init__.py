"""The OpenAPI document of the HTTP interface, made from the routes, the shapes of `wire/` and the table of errors."""
