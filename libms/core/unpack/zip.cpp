#include "unpack/zip.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/text.h"

namespace ms::unpack {
namespace {

constexpr std::int64_t kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20, kEntryBytes = 46, kHeaderBytes = 30;
constexpr std::int64_t kMostCommentBytes = 65535, kMostDirectoryBytes = std::int64_t{64} << 20;
constexpr std::string_view kEnd = "PK\5\6", kEnd64 = "PK\6\6", kLocator = "PK\6\7", kEntry = "PK\1\2",
                           kHeader = "PK\3\4";

[[noreturn]] void refuse_zip(const std::string& why) { throw user_error("data.zip", "a zip archive " + why); }

// Numbers of a record, little-endian.
class Record {
 public:
  explicit Record(std::string_view bytes) : bytes_(bytes) {}
  std::uint64_t number(std::size_t at, std::size_t size) const {
    std::uint64_t value = 0;
    for (std::size_t i = size; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes_[at + i]);
    return value;
  }

 private:
  std::string_view bytes_;
};

class ZipReader {
 public:
  ZipReader(const ReadAt& read, std::int64_t size_bytes) : read_(read), size_(size_bytes) {}

  std::vector<ZipMember> members() {
    find_directory();
    if (directory_size_ > kMostDirectoryBytes || directory_size_ < 0 || directory_at_ < 0 ||
        directory_at_ > size_ - directory_size_)
      refuse_zip("whose central directory lies outside of it");
    const std::string directory = text(directory_at_, directory_size_);
    std::vector<ZipMember> members;
    for (std::string_view rest = directory; !rest.empty();) members.push_back(member(rest));
    if (members.size() != count_)
      refuse_zip(fmt::format("of {} members, of which its directory has {}", count_, members.size()));
    for (ZipMember& member : members) check_header(member);
    std::ranges::sort(members, {}, &ZipMember::begin);
    std::int64_t end = 0;
    for (const ZipMember& member : members) {
      if (member.begin < end || member.size_bytes > directory_at_ - member.begin)
        refuse_zip(fmt::format("whose member {} overlaps another one", plain_text(member.name, 80)));
      end = member.begin + member.size_bytes;
    }
    return members;
  }

 private:
  std::string text(std::int64_t at, std::int64_t size) const {
    std::string bytes(static_cast<std::size_t>(size), '\0');
    read_(at, std::as_writable_bytes(std::span(bytes)));
    return bytes;
  }

  void find_directory() {
    const std::int64_t tail_size = std::min(size_, kEndBytes + kMostCommentBytes);
    // Without a comment, which nearly all archives lack, the record is the last thing.
    for (const std::int64_t looked_at : {std::min(tail_size, kEndBytes), tail_size}) {
      const std::string tail = text(size_ - looked_at, looked_at);
      for (std::size_t at = tail.rfind(kEnd); at != std::string::npos && at > 0; at = tail.rfind(kEnd, at - 1)) {
        if (take_end(tail, at)) return;
      }
      if (take_end(tail, 0)) return;
    }
    refuse_zip("without its central directory at its end: the file was cut off, or overwritten");
  }
  bool take_end(const std::string& tail, std::size_t at) {
    if (tail.size() < at + kEndBytes || tail.compare(at, kEnd.size(), kEnd) != 0) return false;
    const Record end(std::string_view(tail).substr(at));
    if (end.number(20, 2) != tail.size() - at - kEndBytes) return false;
    count_ = end.number(10, 2);
    directory_size_ = static_cast<std::int64_t>(end.number(12, 4));
    directory_at_ = static_cast<std::int64_t>(end.number(16, 4));
    const std::int64_t end_at = size_ - static_cast<std::int64_t>(tail.size() - at);
    if (end_at < kLocatorBytes) return true;
    const std::string locator = text(end_at - kLocatorBytes, kLocatorBytes);
    if (!locator.starts_with(kLocator)) return true;
    const auto end64_at = static_cast<std::int64_t>(Record(locator).number(8, 8));
    if (end64_at < 0 || end64_at > end_at - kLocatorBytes - kEnd64Bytes) refuse_zip("whose end points beyond it");
    const std::string end64 = text(end64_at, kEnd64Bytes);
    if (!end64.starts_with(kEnd64)) refuse_zip("whose end points to no directory");
    count_ = Record(end64).number(32, 8);
    directory_size_ = static_cast<std::int64_t>(Record(end64).number(40, 8));
    directory_at_ = static_cast<std::int64_t>(Record(end64).number(48, 8));
    return true;
  }

  // Takes the next entry of the directory.
  static ZipMember member(std::string_view& rest) {
    if (rest.size() < kEntryBytes || !rest.starts_with(kEntry)) refuse_zip("whose central directory is damaged");
    const Record entry(rest);
    const std::uint64_t name_size = entry.number(28, 2), extra_size = entry.number(30, 2),
                        comment_size = entry.number(32, 2);
    const std::uint64_t all = kEntryBytes + name_size + extra_size + comment_size;
    if (rest.size() < all) refuse_zip("whose central directory is damaged");
    ZipMember member{.name = std::string(rest.substr(kEntryBytes, name_size)), .crc = 0};
    member.crc = static_cast<std::uint32_t>(entry.number(16, 4));
    std::uint64_t packed = entry.number(20, 4), size = entry.number(24, 4), at = entry.number(42, 4);
    std::string_view extra = rest.substr(kEntryBytes + name_size, extra_size);
    while (extra.size() >= 4) {  // of 64 bits: those that are all ones, in this order
      const std::uint64_t id = Record(extra).number(0, 2), length = Record(extra).number(2, 2);
      if (length > extra.size() - 4) break;
      std::string_view field = extra.substr(4, length);
      extra.remove_prefix(4 + length);
      for (std::uint64_t* value : {&size, &packed, &at}) {
        if (id != 1 || *value != 0xffffffff || field.size() < 8) continue;
        *value = Record(field).number(0, 8);
        field.remove_prefix(8);
      }
    }
    if (entry.number(10, 2) != 0 || packed != size || (entry.number(8, 2) & 1) != 0)
      refuse_zip(fmt::format("whose member {} is compressed or encrypted", plain_text(member.name, 80)));
    if (size > INT64_MAX || at > INT64_MAX) refuse_zip("whose central directory is damaged");
    member.size_bytes = static_cast<std::int64_t>(size);
    member.begin = static_cast<std::int64_t>(at);  // of its header, until that is read
    rest.remove_prefix(all);
    return member;
  }

  void check_header(ZipMember& member) const {
    const auto size = kHeaderBytes + static_cast<std::int64_t>(member.name.size());
    const auto damaged = [&] {
      refuse_zip(fmt::format("whose member {} has no header where its directory says", plain_text(member.name, 80)));
    };
    if (member.begin > directory_at_ - size) damaged();
    const std::string header = text(member.begin, size);
    const Record record(header);
    if (!header.starts_with(kHeader) || record.number(8, 2) != 0 || record.number(26, 2) != member.name.size() ||
        header.substr(kHeaderBytes) != member.name)
      damaged();
    member.begin += size + static_cast<std::int64_t>(record.number(28, 2));
    if (member.begin > directory_at_) damaged();
  }

  const ReadAt& read_;
  const std::int64_t size_;
  std::uint64_t count_ = 0;
  std::int64_t directory_at_ = 0, directory_size_ = 0;
};

}  // namespace

std::vector<ZipMember> zip_members(const ReadAt& read, std::int64_t size_bytes) {
  return ZipReader(read, size_bytes).members();
}

}  // namespace ms::unpack
