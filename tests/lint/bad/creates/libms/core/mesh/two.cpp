void drop_it() { ::rmdir("a"); }
