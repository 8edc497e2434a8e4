void g() {
  try {
  } catch (...) {}
}
