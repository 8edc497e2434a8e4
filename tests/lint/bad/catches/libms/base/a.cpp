void f() {
  try {
  } catch (int) {
  } catch (...) {  // catch (this) does not count
  }
  const char* s = "catch (nor this)";
}
