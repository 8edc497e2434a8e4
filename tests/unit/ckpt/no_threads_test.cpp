// A file is written where the system has no more threads, as under "ulimit -u" at the end of a run.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cstddef>
#include <cstring>
#include <iterator>
#include <system_error>
#include <thread>

#include "base/hash.h"
#include "ckpt/blocks.h"
#include "format_fixture.h"
#include "support/fork.h"

namespace ms::ckpt {
namespace {

constexpr std::int64_t kSize = kBlockBytes + 12345;

struct Page {
  alignas(kPageBytes) std::byte bytes[kPageBytes];
};

// From now on this process can start neither a thread nor a process; false where there is no seccomp.
bool forbid_threads() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_clone3, 1, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_clone, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{.len = std::size(filter), .filter = filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

bool starts_threads() {
  try {
    std::thread([] {}).join();
    return true;
  } catch (const std::system_error&) { return false; }
}

TEST(NoThreads, TheFileAndItsHashesAreTheSame) {
  const format_fixture::TempDir dir;
  std::vector<Page> pages(static_cast<std::size_t>(image_bytes(kSize) / kPageBytes));
  for (std::size_t i = 0; i < pages.size(); ++i) std::memset(pages[i].bytes, static_cast<int>(i % 251), kPageBytes);
  const std::span<const std::byte> image(pages.data()->bytes, pages.size() * kPageBytes);
  const WriteReport usual = write_image("usual", format_fixture::created(dir / "usual"), image, kSize, {});
  const pid_t child = test::fork_or_throw();
  if (child == 0) {
    if (!forbid_threads()) ::_exit(77);
    const WriteReport report = write_image("alone", format_fixture::created(dir / "alone"), image, kSize, {});
    ::_exit(starts_threads() ? 1 : report.hashes != usual.hashes ? 2 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no seccomp here";
  EXPECT_EQ(WEXITSTATUS(status), 0) << "1: threads can be started, 2: other hashes";
  EXPECT_EQ(usual.hashes.front(), xxh64(image.first(kBlockBytes)));
  EXPECT_TRUE(format_fixture::slurp(dir / "usual") == format_fixture::slurp(dir / "alone"));
}

}  // namespace
}  // namespace ms::ckpt
