void move_it() { ::rename("a", "b"); }
void move_back() { renameat(1, "b", AT_FDCWD, "a"); }
