// What ms-diag finds where libms.so or libms_notify.so of another release was left behind.
#include "health/commands/extension.h"

extern "C" const ms::health::Extension* ms_diag_extension() {
  static const ms::health::Extension kExtension{.version = "0.0.1", .checks = nullptr, .predict = nullptr};
  return &kExtension;
}

extern "C" const ms::health::NotifyExtension* ms_notify_extension() {
  static const ms::health::NotifyExtension kExtension{
      .version = "0.0.1", .notify = nullptr, .page = nullptr, .sample = nullptr};
  return &kExtension;
}
