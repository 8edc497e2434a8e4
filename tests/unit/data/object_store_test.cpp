// Where objects are and who asks, from the environment and a credentials file.
#include "data/object_store.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "support/errors.h"
#include "support/files.h"

namespace ms::data {
namespace {

ObjectStore store_with(std::map<std::string, std::string> environment) {
  return object_store_of([&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(ObjectStore, IsThatOfTheEnvironment) {
  const ObjectStore plain = store_with({{"HOME", "/nowhere"}});
  EXPECT_EQ(plain.endpoint, "https://s3.us-east-1.amazonaws.com");
  EXPECT_TRUE(plain.id.empty());
  const ObjectStore store = store_with({{"AWS_ENDPOINT_URL", "http://other"},
                                        {"AWS_ENDPOINT_URL_S3", "http://ceph:7480//"},
                                        {"AWS_DEFAULT_REGION", "here"},
                                        {"AWS_ACCESS_KEY_ID", "id"},
                                        {"AWS_SECRET_ACCESS_KEY", "secret"},
                                        {"AWS_SESSION_TOKEN", "token"}});
  EXPECT_EQ(store.endpoint, "http://ceph:7480");
  EXPECT_EQ(store.region, "here");
  EXPECT_EQ(store.id + store.secret + store.session_token, "idsecrettoken");
}

TEST(ObjectStore, ReadsProfiles) {
  const test::TempDir directory;
  const std::string path = directory / "credentials";
  test::spill(path,
              "[default]\naws_access_key_id=a\naws_secret_access_key=b\n\n[ours]\n"
              "aws_access_key_id = c\n# aws_access_key_id = x\naws_secret_access_key = d=\naws_session_token = e\n");
  const std::map<std::string, std::string> file{{"AWS_SHARED_CREDENTIALS_FILE", path}};
  EXPECT_EQ(store_with(file).id, "a");
  auto ours = file;
  ours["AWS_PROFILE"] = "ours";
  const ObjectStore store = store_with(ours);
  EXPECT_EQ(store.id, "c");
  EXPECT_EQ(store.secret, "d=");
  EXPECT_EQ(store.session_token, "e");
  ours["AWS_PROFILE"] = "none";
  EXPECT_EQ(test::thrown_by([&] { store_with(ours); }).kind(), "data.object");
  EXPECT_EQ(test::thrown_by([] {
              store_with({{"HOME", "/nowhere"}, {"AWS_SECRET_ACCESS_KEY", "b"}});
            }).kind(),
            "data.object");
}

}  // namespace
}  // namespace ms::data
