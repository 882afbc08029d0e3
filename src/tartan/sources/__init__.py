"""Where items come from: files, URLs, arrays, objects."""
