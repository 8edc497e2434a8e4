// Bundles for a vendor: no secrets, and a tar file.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "health/repair/bundle.h"

namespace ms::health {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Bundle, SecretsStayOutOfABundle) {
  const char* secrets[] = {"HF_TOKEN=hf_Abc123Abc123Abc123",
                           "export AWS_SECRET_ACCESS_KEY='Abc123 Abc123'",
                           "wandb --api-key Abc123 run",
                           "{\"password\": \"Abc123\", \"x\": 1}",
                           "{\"message\":\"env {\\\"db_password\\\": \\\"Abc123\\\"}\"}",
                           "password: Abc123",
                           "Authorization: Bearer Abc123",
                           "curl -H 'Authorization: Basic Abc123'",
                           "mount //user:Abc123@filer/x cifs password=Abc123,vers=3",
                           "https://user:Abc123@proxy:3128/",
                           "url https://hooks.slack.com/services/T0/B0/Abc123",
                           "https://example.com/webhook/Abc123?x=1",
                           "https://example.com/x?token=Abc123&y=1",
                           "a ghp_Abc123Abc123Abc123 b",
                           "curl -u bob:Abc123 https://host/x",
                           "curl --user bob:Abc123 https://host/x",
                           "sshpass -p Abc123 ssh n1",
                           "mysql -u root -pAbc123",
                           "ipmitool -I lanplus -U admin -P Abc123 sel list",
                           "wandb login Abc123Abc123Abc123Abc123Abc123Abc123Abc1",
                           "a nvapi-Abc123Abc123Abc123 b",
                           "a npm_Abc123Abc123Abc123 b",
                           "a pypi-Abc123Abc123Abc123 b",
                           "a AIzaAbc123Abc123Abc123 b",
                           "a dckr_pat_Abc123Abc123Abc123 b",
                           "db pass=Abc123",
                           "passphrase: Abc123",
                           "X-Auth-Key: Abc123",
                           "https://host/x?sv=1&sig=Abc123",
                           "https://host/x?X-Amz-Signature=Abc123",
                           "-----BEGIN OPENSSH PRIVATE KEY-----\nAbc123\n-----END OPENSSH PRIVATE KEY-----"};
  for (const char* secret : secrets) {
    const std::string clean = without_secrets(fmt::format("before\n{}\nafter\n", secret));
    EXPECT_THAT(clean, Not(HasSubstr("Abc123"))) << secret;
    EXPECT_THAT(clean, HasSubstr("before\n")) << secret;
    EXPECT_THAT(clean, HasSubstr("\nafter\n")) << secret;
  }
  for (const char* evidence : {"NVRM: Xid (PCI:0000:17:00): 79, pid=1234, GPU has fallen off the bus.",
                               "{\"code\":\"gpu.ecc\",\"entity\":\"gpu 3\",\"measured\":4}", "https://host/path",
                               "gpu.ecc: pass", "design: 4", "ssh -p 22 n1"}) {
    EXPECT_EQ(without_secrets(evidence), evidence);
  }
}

// Users write to the logs: a line whose every byte had the rest of the line read again would take hours.
TEST(Bundle, LongLinesAreReadOnce) {
  for (const std::string_view unit : {"(", "/", "=", "a:", "x@", "pwd ", "key=a ", "a:// "}) {
    std::string line;
    while (line.size() < std::size_t{1} << 20) line += unit;
    EXPECT_FALSE(without_secrets(line).empty()) << unit;
  }
}

TEST(Bundle, ATarFileHasWholeBlocks) {
  const std::string tar = tar_file("before/report.json", std::string(513, 'x'), 1.8e9) + tar_end();
  EXPECT_EQ(tar.size(), 512 + 1024 + 1024);
  EXPECT_EQ(tar.substr(0, 18), "before/report.json");
  EXPECT_EQ(tar.substr(124, 11), "00000001001");
}

TEST(Bundle, TheLogOfSlurmdIsWhereSlurmSaysItIs) {
  slurm::Node node;
  node.name = "n7";
  node.host = "gpu7.site.example";
  const auto path = [&](const std::string& file) { return slurmd_log_of({{"SlurmdLogFile", file}}, node); };
  EXPECT_EQ(path("/var/log/slurm/slurmd.log"), "/var/log/slurm/slurmd.log");
  EXPECT_EQ(path("/var/log/slurmd.%n.log"), "/var/log/slurmd.n7.log");
  EXPECT_EQ(path("/var/log/%h/slurmd.log"), "/var/log/gpu7/slurmd.log");
  for (const char* file : {"", "slurmd.log", "/var/log/a b", "/var/log/$(reboot)", "/var/log/%u"})
    EXPECT_EQ(path(file), "");
  EXPECT_EQ(slurmd_log_of({}, node), "");
}

}  // namespace
}  // namespace ms::health
