// Zip archives: of what members, where, and what is refused.
#include "unpack/zip.h"

#include <gmock/gmock.h>

#include <cstring>
#include <random>

#include "base/error.h"

namespace ms::unpack {
namespace {

using namespace std::string_literals;

std::string number(std::uint64_t value, int size) {
  std::string bytes;
  for (int i = 0; i < size; ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

struct Written {
  std::string bytes;
  std::size_t directory_at = 0;
};

// An archive as torch.save writes it: padding before the data, sizes only in the directory; `zip64`: of 64 bits.
Written archive(const std::vector<std::pair<std::string, std::string>>& members, bool zip64 = false) {
  std::string bytes, directory;
  for (const auto& [name, data] : members) {
    const std::string padding = "FB" + number(5, 2) + "ZZZZZ";
    const auto crc = zip_crc(0, std::as_bytes(std::span(data)));
    const std::size_t at = bytes.size();
    bytes += "PK\3\4" + number(0, 2) + number(0x808, 2) + number(0, 2) + number(0, 4) + number(0, 12) +
             number(name.size(), 2) + number(padding.size(), 2) + name + padding + data;
    const std::uint64_t small = zip64 ? 0xffffffff : data.size();
    const std::string extra =
        zip64 ? number(1, 2) + number(24, 2) + number(data.size(), 8) + number(data.size(), 8) + number(at, 8) : "";
    directory += "PK\1\2" + number(0, 4) + number(0x808, 2) + number(0, 2) + number(0, 4) + number(crc, 4) +
                 number(small, 4) + number(small, 4) + number(name.size(), 2) + number(extra.size(), 2) +
                 number(0, 10) + number(zip64 ? 0xffffffff : at, 4) + name + extra;
  }
  const std::size_t at = bytes.size();
  bytes += directory;
  if (zip64) {
    const std::size_t end_at = bytes.size();
    bytes += "PK\6\6" + number(44, 8) + number(0, 12) + number(members.size(), 8) + number(members.size(), 8) +
             number(directory.size(), 8) + number(at, 8);
    bytes += "PK\6\7" + number(0, 4) + number(end_at, 8) + number(1, 4);
  }
  bytes += "PK\5\6" + number(0, 4) + number(zip64 ? 0xffff : members.size(), 2) +
           number(zip64 ? 0xffff : members.size(), 2) + number(zip64 ? 0xffffffff : directory.size(), 4) +
           number(zip64 ? 0xffffffff : at, 4) + number(0, 2);
  return {bytes, at};
}

std::vector<ZipMember> members_of(const std::string& bytes) {
  const ReadAt read = [&](std::int64_t at, std::span<std::byte> to) {
    ASSERT_GE(at, 0);
    ASSERT_LE(at + std::ssize(to), std::ssize(bytes));
    std::memcpy(to.data(), bytes.data() + at, to.size());
  };
  return zip_members(read, std::ssize(bytes));
}

std::string zip_problem(const std::string& bytes) {
  try {
    members_of(bytes);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), "data.zip");
    return error.message();
  }
  return "";
}

TEST(Zip, ReadsMembers) {
  for (const bool zip64 : {false, true}) {
    const std::string bytes = archive({{"a/data.pkl", "pickle"}, {"a/data/0", "1234"}, {"a/empty", ""}}, zip64).bytes;
    const std::vector<ZipMember> members = members_of(bytes);
    ASSERT_EQ(members.size(), 3U);
    EXPECT_EQ(members[1].name, "a/data/0");
    EXPECT_EQ(bytes.substr(static_cast<std::size_t>(members[1].begin), 4), "1234");
    EXPECT_EQ(members[1].size_bytes, 4);
    EXPECT_EQ(members[1].crc, 0x9be3e0a3U);
  }
  std::string commented = archive({{"a", "1"}}).bytes;
  commented[commented.size() - 2] = 5;
  EXPECT_EQ(members_of(commented + "PK\5\6x").size(), 1U);
  EXPECT_EQ(members_of(archive({}).bytes).size(), 0U);
}

// One member, whose header and entry in the directory differ as those of some writers do.
struct Styled {
  std::string what;
  std::uint64_t header_flags, entry_flags;
  bool sizes_behind = false, zip64_header = false;
};
std::string archive_of(const Styled& style) {
  const std::string name = "a/data/0", data = "1234", sizes = number(data.size(), 4) + number(data.size(), 4);
  const std::string crc = number(zip_crc(0, std::as_bytes(std::span(data))), 4);
  const std::string extra =
      style.zip64_header ? number(1, 2) + number(16, 2) + number(data.size(), 8) + number(data.size(), 8) : "";
  std::string bytes = "PK\3\4" + number(20, 2) + number(style.header_flags, 2) + number(0, 6);
  bytes += style.sizes_behind ? number(0, 4) : crc;
  bytes += style.sizes_behind ? number(0, 8) : style.zip64_header ? number(UINT64_MAX, 8) : sizes;
  bytes += number(name.size(), 2) + number(extra.size(), 2) + name + extra + data;
  if (style.sizes_behind) bytes += "PK\7\10" + crc + sizes;
  const std::string directory = "PK\1\2" + number(20, 2) + number(20, 2) + number(style.entry_flags, 2) + number(0, 6) +
                                crc + sizes + number(name.size(), 2) + number(0, 16) + name;
  return bytes + directory + "PK\5\6" + number(0, 4) + number(1, 2) + number(1, 2) + number(directory.size(), 4) +
         number(bytes.size(), 4) + number(0, 2);
}

TEST(Zip, ReadsWhatOtherWritersWrite) {
  const Styled styles[] = {
      {"zipfile of Python", 0, 0},
      {"sizes behind the data", 8, 8, true},
      {"sizes behind the data, and names in UTF-8", 0x808, 0x808, true},
      {"sizes of 64 bits in the header", 0, 0, false, true},
      {"UTF-8 in the directory only", 0, 0x800},
      {"UTF-8 in the header only", 0x800, 0},
  };
  for (const Styled& style : styles) {
    const std::string bytes = archive_of(style);
    ASSERT_EQ(zip_problem(bytes), "") << style.what;
    const std::vector<ZipMember> members = members_of(bytes);
    ASSERT_EQ(members.size(), 1U) << style.what;
    EXPECT_EQ(bytes.substr(static_cast<std::size_t>(members[0].begin), 4), "1234") << style.what;
    EXPECT_EQ(members[0].size_bytes, 4) << style.what;
  }
}

TEST(Zip, RefusesDamage) {
  const Written sound = archive({{"a/data.pkl", "pickle"}, {"a/data/0", "1234"}});
  const auto with = [&](std::size_t at, const std::string& bytes) {
    std::string changed = sound.bytes;
    return changed.replace(at, bytes.size(), bytes);
  };
  const std::size_t first = sound.directory_at, second = first + 46 + 10;
  const struct {
    std::string bytes, problem;
  } rows[] = {
      {"", "without its central directory"},
      {sound.bytes.substr(0, sound.bytes.size() - 1), "without its central directory"},
      {sound.bytes.substr(1), "central directory is damaged"},
      {with(sound.bytes.size() - 6, number(sound.bytes.size(), 4)), "lies outside of it"},
      {with(sound.bytes.size() - 14, number(3, 2) + number(3, 2)), "of 3 members, of which its directory has 2"},
      {with(first, "PK\1\3"), "central directory is damaged"},
      {with(second + 28, number(999, 2)), "central directory is damaged"},
      {with(first + 10, number(8, 2)), "is compressed or encrypted"},
      {with(first + 8, number(1, 2)), "is compressed or encrypted"},
      {with(first + 20, number(7, 4)), "is compressed or encrypted"},
      {with(first + 20, number(9999, 4) + number(9999, 4)), "overlaps another one"},
      {with(second + 20, number(9999, 4) + number(9999, 4)), "overlaps another one"},
      {with(first + 42, number(0xfffffff0, 4)), "no header where"},
      {with(first + 42, number(7, 4)), "no header where"},
      {with(30, "b"), "no header where"},
      {with(0, "PK\3\5"), "no header where"},
      {with(28, number(0xffff, 2)), "no header where"},
  };
  for (const auto& row : rows) EXPECT_THAT(zip_problem(row.bytes), testing::HasSubstr(row.problem));
}

// Bytes that carry no data of a member, and still belong to the archive.
TEST(Zip, RefusesDamagedBookkeeping) {
  for (const bool zip64 : {false, true}) {
    const Written sound = archive({{"a/data.pkl", "pickle"}, {"a/data/0", "1234"}}, zip64);
    const std::size_t end = sound.bytes.size() - 22, locator = end - 20, end64 = locator - 56;
    const std::size_t first = sound.directory_at;
    std::vector<std::size_t> places{6, 7, 14, 18, 22, first + 9, first + 34, first + 35, end + 4, end + 6, end + 8};
    if (zip64) {
      for (const std::size_t at : {locator + 4, locator + 18, end64 + 16, end64 + 20, end64 + 24, end64 + 32})
        places.push_back(at);
    }
    for (const std::size_t at : places) {
      std::string bytes = sound.bytes;
      bytes[at] = static_cast<char>(bytes[at] ^ 0x20);
      EXPECT_FALSE(zip_problem(bytes).empty()) << at - first << (zip64 ? ", zip64" : "");
    }
  }
}

TEST(Zip, SurvivesDamage) {
  std::mt19937 random(1);
  int sound = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = archive({{"a/data.pkl", "pickle"}, {"a/data/0", "1234"}}, round % 2 == 0).bytes;
    for (unsigned i = 0; i <= random() % 4; ++i) bytes[random() % bytes.size()] = static_cast<char>(random());
    if (zip_problem(bytes.substr(0, bytes.size() - random() % 2)).empty()) ++sound;
  }
  EXPECT_GT(sound, 100);
  EXPECT_LT(sound, 15000);
}

}  // namespace
}  // namespace ms::unpack
