void make_it() { mkdir("a", 0700); }
