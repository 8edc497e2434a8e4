#include "unpack/zip.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace ms::unpack {
namespace {

constexpr std::int64_t kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20, kEntryBytes = 46, kHeaderBytes = 30;
constexpr std::size_t kCrcAt = 14;  // in a header
constexpr std::int64_t kMostCommentBytes = 65535, kMostDirectoryBytes = std::int64_t{64} << 20;
constexpr std::string_view kEnd = "PK\5\6", kEnd64 = "PK\6\6", kLocator = "PK\6\7", kEntry = "PK\1\2",
                           kHeader = "PK\3\4";

// Flags: how it was compressed, that sizes follow the data, that names are UTF-8.
constexpr std::uint64_t kSizesFollow = 1 << 3, kUtf8 = 1 << 11, kKnownFlags = 1 << 1 | 1 << 2 | kSizesFollow | kUtf8;

[[noreturn]] void refuse_zip(const std::string& why) { throw user_error("data.zip", "a zip archive " + why); }
[[noreturn]] void refuse_disks() { refuse_zip("of several disks, or whose end is damaged"); }

struct Entry : ZipMember {
  std::uint64_t flags = 0;
};

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
    std::vector<Entry> members;
    for (std::string_view rest = directory; !rest.empty();) members.push_back(member(rest));
    if (members.size() != count_)
      refuse_zip(fmt::format("of {} members, of which its directory has {}", count_, members.size()));
    for (Entry& member : members) check_header(member);
    std::ranges::sort(members, {}, &Entry::begin);
    std::int64_t end = 0;
    for (const Entry& member : members) {
      if (member.begin < end || member.size_bytes > directory_at_ - member.begin)
        refuse_zip(fmt::format("whose member {} overlaps another one", plain_text(member.name, 80)));
      end = member.begin + member.size_bytes;
    }
    return {members.begin(), members.end()};
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
    const auto is_first = [&](std::uint64_t disk) { return disk == 0 || disk == 0xffff; };  // or that of 64 bits is
    if (!is_first(end.number(4, 2)) || !is_first(end.number(6, 2)) || end.number(8, 2) != count_) refuse_disks();
    if (end_at < kLocatorBytes) return true;
    const std::string locator = text(end_at - kLocatorBytes, kLocatorBytes);
    if (!locator.starts_with(kLocator)) return true;
    if (Record(locator).number(4, 4) != 0 || Record(locator).number(16, 4) > 1) refuse_disks();
    const auto end64_at = static_cast<std::int64_t>(Record(locator).number(8, 8));
    if (end64_at < 0 || end64_at > end_at - kLocatorBytes - kEnd64Bytes) refuse_zip("whose end points beyond it");
    const std::string end64 = text(end64_at, kEnd64Bytes);
    if (!end64.starts_with(kEnd64)) refuse_zip("whose end points to no directory");
    if (Record(end64).number(16, 4) != 0 || Record(end64).number(20, 4) != 0 ||
        Record(end64).number(24, 8) != Record(end64).number(32, 8))
      refuse_disks();
    count_ = Record(end64).number(32, 8);
    directory_size_ = static_cast<std::int64_t>(Record(end64).number(40, 8));
    directory_at_ = static_cast<std::int64_t>(Record(end64).number(48, 8));
    return true;
  }

  // Takes the next entry of the directory.
  static Entry member(std::string_view& rest) {
    if (rest.size() < kEntryBytes || !rest.starts_with(kEntry)) refuse_zip("whose central directory is damaged");
    const Record entry(rest);
    const std::uint64_t name_size = entry.number(28, 2), extra_size = entry.number(30, 2),
                        comment_size = entry.number(32, 2);
    const std::uint64_t all = kEntryBytes + name_size + extra_size + comment_size;
    if (rest.size() < all) refuse_zip("whose central directory is damaged");
    Entry member;
    member.name = std::string(rest.substr(kEntryBytes, name_size));
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
    member.flags = entry.number(8, 2);
    if ((member.flags & ~kKnownFlags) != 0)
      refuse_zip(fmt::format("whose member {} has unknown flags", plain_text(member.name, 80)));
    if (entry.number(34, 2) != 0) refuse_disks();
    if (size > INT64_MAX || at > INT64_MAX) refuse_zip("whose central directory is damaged");
    member.size_bytes = static_cast<std::int64_t>(size);
    member.begin = static_cast<std::int64_t>(at);  // of its header, until that is read
    rest.remove_prefix(all);
    return member;
  }

  void check_header(Entry& member) const {
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
    const auto is_as_listed = [&](std::size_t at, std::int64_t listed) {
      const std::uint64_t value = record.number(at, 4);
      return value == static_cast<std::uint64_t>(listed) || (value == 0 && (member.flags & kSizesFollow) != 0) ||
             (value == 0xffffffff && at != kCrcAt);
    };
    // Some writers set the flag of UTF-8 only in the directory.
    if ((record.number(6, 2) & ~kUtf8) != (member.flags & ~kUtf8) || !is_as_listed(kCrcAt, member.crc) ||
        !is_as_listed(18, member.size_bytes) || !is_as_listed(22, member.size_bytes))
      refuse_zip(
          fmt::format("whose member {} has another header than its directory says", plain_text(member.name, 80)));
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
