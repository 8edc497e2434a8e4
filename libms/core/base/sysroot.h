// The node's files as checks see them: under "/" on a node, under a directory in tests. Paths are absolute and given as
// on a node ("/sys/class/net"). Reads are bounded and never follow a name out of the root.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ms {

class Sysroot {
 public:
  explicit Sysroot(std::string root = "/");

  bool is_real() const { return root_ == "/"; }
  std::string path(std::string_view absolute) const;  // where it lies

  bool exists(std::string_view absolute) const;
  // The text, trimmed of the last line end. nullopt where there is no such file or it gives none (EINVAL, EIO:
  // restricted counters do that); at most max_bytes of it.
  std::optional<std::string> read(std::string_view absolute, std::size_t max_bytes = std::size_t{1} << 20) const;
  std::optional<std::int64_t> read_int(std::string_view absolute) const;  // decimal or 0x...; nullopt: no number
  std::vector<std::string> list(std::string_view absolute) const;         // names, sorted, without "." and ".."
  // The last component of a symbolic link's target ("/sys/class/net/eth0/device" -> "0000:17:00.0"); empty: no link.
  std::string link_name(std::string_view absolute) const;

 private:
  std::string root_;
};

}  // namespace ms
