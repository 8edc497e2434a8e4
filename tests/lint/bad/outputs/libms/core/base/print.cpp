#include <cstdio>
void show(const char* name) {
  std::printf("%s\n", name);
  std::fputs(name, stderr);
  fmt::print("{}\n", name);
  std::cout << name;
  std::fflush(stdout);
  std::snprintf(line, sizeof line, "%s", name);  // no printf(
  print_out("{} to stdout\n", name);
}
