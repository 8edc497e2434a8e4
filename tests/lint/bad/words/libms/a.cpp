// TODO: later
int a;  // see /home/someone/x
int todo_list;  // TODOS are fine, "rest/home/path" as well
// café
