"""JSON Schemas of drafts 4 to 2020-12: checked by `jsonschema`, compared by the rules that Confluent's registry publishes."""
