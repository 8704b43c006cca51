"""The torch backend: the same programs as torch calls, on a GPU or on torch's own CPU device."""
