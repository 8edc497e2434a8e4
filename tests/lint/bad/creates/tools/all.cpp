// fs::remove_all("a") in a comment; what is right:
std::ifstream in("a");
auto end = std::remove(list.begin(), list.end(), 3);
waiting.remove(job);
FILE* read = fopen("a", "r");
dir.rename("a");
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
}
