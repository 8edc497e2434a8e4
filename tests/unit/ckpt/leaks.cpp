// What HDF5 keeps of a file that it can neither write nor close is its own affair: FileWriterTest makes such a file.
// Read by the address sanitizer, elsewhere by nobody.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libhdf5\n"; }
