// Foreign text cannot control a terminal.
#include "locus/text.h"

#include <gtest/gtest.h>

namespace locus {
namespace {

TEST(TextTest, ControlsAreEscaped) {
  EXPECT_EQ(EscapeControls("plain, \u00e9\u4e2d\U0001f600 \\ '"),
            "plain, \u00e9\u4e2d\U0001f600 \\ '");
  EXPECT_EQ(EscapeControls("\x1b[31mred\a\r\b\t\x7f"),
            "\\x1b[31mred\\x07\\x0d\\x08\\x09\\x7f");
  EXPECT_EQ(EscapeControls(std::string_view("a\0b", 3)), "a\\x00b");
  // U+009B is another spelling of ESC [.
  EXPECT_EQ(EscapeControls("\xc2\x9b"
                           "31m"),
            "\\x9b31m");
  EXPECT_EQ(EscapeControls("\u202egnp.exe\u2066\u2028"),
            "\\u202egnp.exe\\u2066\\u2028");
}

TEST(TextTest, LinesStayWhereTheyMay) {
  EXPECT_EQ(EscapeControls("a\nb"), "a\\x0ab");
  EXPECT_EQ(EscapeControls("a\nb\r\n", /*keep_lines=*/true), "a\nb\\x0d\n");
}

TEST(TextTest, BytesThatAreNoUtf8AreEscaped) {
  EXPECT_EQ(EscapeControls("\x9b"
                           "31m"),
            "\\x9b31m");
  EXPECT_EQ(EscapeControls("\xc2"), "\\xc2");           // cut short
  EXPECT_EQ(EscapeControls("\xc0\x9b"), "\\xc0\\x9b");  // overlong
  EXPECT_EQ(EscapeControls("\xe0\x82\x9b"), "\\xe0\\x82\\x9b");
  EXPECT_EQ(EscapeControls("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // surrogate
  EXPECT_EQ(EscapeControls("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(EscapeControls("\xff\xfe"), "\\xff\\xfe");
}

TEST(TextTest, PrintableIsShort) {
  EXPECT_EQ(Printable("abc", 3), "abc");
  EXPECT_EQ(Printable("abcd", 3), "abc...");
  EXPECT_EQ(Printable("\u4e2d\u4e2d", 4), "\u4e2d...");  // not inside one
  EXPECT_EQ(Printable("\x1b", 1), "\\x1b");
}

}  // namespace
}  // namespace locus
