// TODO: later
int a;  // see /work/main/x
int todo_list;  // TODOS are fine, "rest/home/path" as well
// café
