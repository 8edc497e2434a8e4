int open_it() { return open("a", O_CREAT); }  // the module itself
