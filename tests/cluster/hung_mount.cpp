// A mount that hangs, for tests: FUSE without anybody behind it. Whoever touches the path waits until this program
// ends. usage: hung_mount PATH    (prints "ready" when it hangs)
#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cstdio>
#include <string>

int main(int argc, char** argv) {
  const int fd = argc == 2 ? ::open("/dev/fuse", O_RDWR | O_CLOEXEC) : -1;
  if (fd < 0) {
    std::perror("hung_mount: /dev/fuse");
    return 1;
  }
  const std::string options = "fd=" + std::to_string(fd) + ",rootmode=40000,user_id=0,group_id=0";
  if (::mount("hung", argv[1], "fuse", 0, options.c_str()) != 0) {
    std::perror("hung_mount: mount");
    return 1;
  }
  std::puts("ready");
  std::fflush(stdout);
  for (;;) ::pause();
}
