void open() { throw Error("file.open", Blame::storage, "cannot open"); }
void read() { throw made("file.read", Blame::storage, "cannot read"); }
void write() {
  throw Error(
      "file.write", Blame::storage, "cannot write");
}
void shut() { report(error_of(thrown, "file.shut")); }
