#include "trace/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/files.h"

namespace ms::trace {
namespace {

// The check values of RFC 3720, B.4.
TEST(Crc32c, IsCastagnolis) {
  std::string rising;
  for (int i = 0; i < 32; ++i) rising += static_cast<char>(i);
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
  EXPECT_EQ(crc32c(rising), 0x46DD794EU);
}

// tests/support/event_file.py reads whole files of runs; this holds the bytes.
TEST(EventFile, WritesRecordsOfProtobufs) {
  const test::TempDir dir;
  EventFile file(dir / "curves", 3, 1.5);
  file.write(300, 2.5, {{"train/loss", 0.5}, {"a", -2}});
  file.close();
  const std::string bytes = test::slurp(file.path());
  const std::string times[] = {std::string("\x09\0\0\0\0\0\0\xF8\x3F", 9), std::string("\x09\0\0\0\0\0\0\x04\x40", 9)};
  const std::string version = times[0] + std::string("\x10\0\x1A\x0D", 4) + "brain.Event:2";
  const std::string start = times[0] + "\x10\x03\x3A\x02\x08\x01";
  const std::string scalars = times[1] + "\x10\xAC\x02\x2A\x1D" + "\x0A\x11\x0A\x0Atrain/loss\x15" +
                              std::string("\0\0\0\x3F", 4) + "\x0A\x08\x0A\x01" + "a\x15" +
                              std::string("\0\0\0\xC0", 4);
  std::size_t at = 0;
  for (const std::string& event : {version, start, scalars}) {
    ASSERT_EQ(bytes.substr(at, 8), std::string(1, static_cast<char>(event.size())) + std::string(7, '\0'));
    EXPECT_EQ(bytes.substr(at + 12, event.size()), event);
    at += 12 + event.size() + 4;
  }
  EXPECT_EQ(bytes.size(), at);
  EXPECT_THAT(file.path(), ::testing::StartsWith(dir / "curves/events.out.tfevents.0000000002."));
}

TEST(EventFile, FailureToCreateBlamesStorage) {
  const test::TempDir dir;
  test::spill(dir / "taken", "a file");
  try {
    EventFile(dir / "taken", 1, 0);
    ADD_FAILURE() << "a file is no directory";
  } catch (const Error& error) { EXPECT_EQ(error.blame(), Blame::storage); }
}

}  // namespace
}  // namespace ms::trace
