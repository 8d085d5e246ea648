// Styles are a part of the bundle; importing them has no value.

declare module "*.css";
