// fs::remove_all("a") in a comment; what is right:
std::ifstream in("a");
auto end = std::remove(list.begin(), list.end(), 3);
waiting.remove(job);
FILE* read = fopen("a", "r");
dir.rename("a");
dir.unlink("a");
::unlinkat(dir.fd(), "a", 0);
mkdirat(dir, "a", 0700);
renameat(dir, "a", dir, "b");
// What is not:
void remove_them() {
  std::filesystem::remove("a");
  fs::remove_all(dir_ + "/a", ignored);
  std::filesystem::rename("a", "b");
  std::remove("a");
  std::remove(path.c_str());
  std::rename(a.c_str(), b.c_str());
  openat(dir, "a", O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  std::ofstream out("a");
  FILE* write = fopen(path.c_str(), "w");
  unlink("a");
  unlinkat(AT_FDCWD, "a", 0);
  ::rmdir(path.c_str());
  if (mkdir("a", 0700) == 0) return;
  ::mkdirat(AT_FDCWD, "a", 0700);
  mkstemp(name.data());
  ::mkostemp(name.data(), O_CLOEXEC);
  mkdtemp(name.data());
  symlink("a", "b");
  link(a.c_str(), "b");
  linkat(dir, "a", AT_FDCWD, "b", 0);
  mkfifo("a", 0600);
  fs::create_directories("a");
  std::filesystem::create_symlink("a", "b");
}
