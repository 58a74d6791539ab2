"""Texts that would do something if a page took them for more than text."""

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)//",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "' onmouseover='alert(1)' x='",
    '" autofocus onfocus="alert(1)',
    "</title></style></textarea><h1>",
    "<!-- --> <!--<script>",
    "]]> <![CDATA[ <?php ?>",
    "&lt;b&gt; &#60;b&#62; &quot; &amp;amp;",
    "\u2028\u2029 \u202e \ufeff é 😀",
    '"}]});alert(1);// \\" \\u003c/script\\u003e',
    "`${alert(1)}` {title} {0} %s %(x)s {{}}",
    "javascript:alert(1)",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    '<a href="data:text/html,<b>">',
    "\x00\x0b\x7f <\x00script>",
    "<base href=//evil><meta http-equiv=refresh>",
]
