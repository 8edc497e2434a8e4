constexpr Row kErrorKinds[] = {
    {"file.open", "A file cannot be opened."},
    {"file.nobody", "Nothing throws it."},
    {"file.read", "A file cannot be read."},
};
