void move_it() { rename("a", "b"); }
